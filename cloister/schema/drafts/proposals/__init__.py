"""What a draft proposes beside its columns, from what they hold together; nothing is declared."""
