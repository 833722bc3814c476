"""Which pending gangs are planned next, and why each of them waits."""
