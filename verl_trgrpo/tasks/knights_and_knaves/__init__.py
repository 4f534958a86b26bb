"""Knights-and-Knaves puzzles: statements (logic), generation and wording (puzzles), data sets (rows), and the reward."""
