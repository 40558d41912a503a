"""The broker for other people's tests, used as they use it: by their clients and by pytest."""
