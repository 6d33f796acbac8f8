# SPDX-License-Identifier: Apache-2.0
"""The shells with completion, and its help text, for both commands of llmb."""

SHELLS = ("bash", "zsh", "fish")
HELP = """\
Print the completion script for SHELL.

For yourself, add a line to the shell's startup file:

\b
~/.bashrc                   source <({prog} completion bash)
~/.zshrc                    source <({prog} completion zsh)
~/.config/fish/config.fish  {prog} completion fish | source

For all users, as root:

\b
{prog} completion bash > /etc/bash_completion.d/{prog}
{prog} completion zsh \\
    > /usr/local/share/zsh/site-functions/_{prog}
{prog} completion fish > /etc/fish/completions/{prog}.fish
"""
