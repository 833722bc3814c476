"""PersistentVolumeClaims: which nodes they allow, and how those of a gang are bound together."""
