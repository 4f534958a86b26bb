"""``verl-trgrpo data check`` and ``decontaminate``: are these files fit for training, and without the rows that are not?"""
