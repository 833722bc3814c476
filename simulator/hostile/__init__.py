"""A tenant who means harm, the objects he writes, and a cluster that judges what they do."""
