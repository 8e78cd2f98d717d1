"""The program that follows logs on a node: Python 3.8, standard library only."""
