"""Jobs from the form to their end: inputs, the queue, the dispatcher."""
