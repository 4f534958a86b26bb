"""Knights-and-knaves puzzles as the data sets have them: one, the same with other names, and another."""

STATEMENTS = "(('lying', 1), ('telling-truth', 0), ('and', ('lying', 0), ('telling-truth', 1)))"
RENAMED = "(('telling-truth', 2), ('and', ('telling-truth', 0), ('lying', 2)), ('lying', 0))"
OTHER = "(('lying', 1), ('telling-truth', 0), ('and', ('lying', 0), ('telling-truth', 2)))"
