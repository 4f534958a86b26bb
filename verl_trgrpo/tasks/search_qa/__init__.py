"""Questions with short answers for training with search: Search-R1's train and test sets."""
