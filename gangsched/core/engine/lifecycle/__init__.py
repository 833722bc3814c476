"""The states of a gang, and what moves it from one to the next."""
