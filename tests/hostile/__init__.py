"""What a client may do to a broker, over real sockets, with an honest client beside it."""
