"""What facts about pods, removed gangs and an earlier process change."""
