"""What the tests share: running the command, writing checkpoints, crafting bad ones."""
