"""What a client can do to a broker that it was never meant to do, over real sockets, with an honest client beside it."""
