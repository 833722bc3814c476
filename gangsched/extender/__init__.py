"""The HTTP extender of kube-scheduler: answers are look-ups, /bind is the barrier."""
