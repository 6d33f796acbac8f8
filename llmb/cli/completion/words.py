# SPDX-License-Identifier: Apache-2.0
"""The names of the shells whose words are completed, and the help on it, for both commands of llmb."""

SHELLS = ("bash", "zsh", "fish")
HELP = """\
Print the script that completes words in SHELL: bash, zsh or fish.

For you, a line in the shell's startup file:

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
