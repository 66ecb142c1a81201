"""Which kernel each layer has, what it costs, and which plan of the memory is best."""
