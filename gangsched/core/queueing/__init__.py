"""Who is next, what is kept for whom, who must give back, and when a gang will start."""
