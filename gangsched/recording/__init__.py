"""What a scheduler records: the journal, and the audit log; and what reads them again."""
