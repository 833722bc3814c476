"""What each watch does with an object: API objects become facts for the engine."""
