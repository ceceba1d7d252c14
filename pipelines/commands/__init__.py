"""The commands of `baton`: one file for each command or family of commands, registered by `pipelines.cli`."""
