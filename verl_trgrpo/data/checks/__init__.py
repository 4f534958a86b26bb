"""The single checks behind `verl_trgrpo.data.check`."""
