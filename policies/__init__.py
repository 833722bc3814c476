"""The policies that clusters choose from: each is one class in one file, with an entry point."""
