"""A mapper as one of other processes is: function and items are pickled on their way."""

import pickle


def shipped(function, items):
    """What a copy of the function makes of copies of the items, in order."""
    copy = pickle.loads(pickle.dumps(function))
    return (pickle.loads(pickle.dumps(copy(pickle.loads(pickle.dumps(item))))) for item in items)
