"""kopf handlers: they parse, call the core's reconcile, and pass the orders on."""
