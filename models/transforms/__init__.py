"""What wraps a method: other tasks in place of one, such as differences of ordered numbers."""
