"""The commands of `baton`, one file a command or a family of commands. `pipelines.cli` names them."""
