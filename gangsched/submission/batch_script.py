"""Reads the #SBATCH lines of a script as sbatch reads them (slurm, src/sbatch/opt.c).

Lines count up to the first command. A value may be quoted; an unquoted # begins a comment.
"""

from dataclasses import dataclass

from gangsched.config import ConfigError
from gangsched.submission.batch_options import Given, read_options

SCRIPT_BYTES_MAX = 512 * 1024
"""A script is stored in a Secret, which may have 1 MiB."""

_LINES_MAX = 2000
_MARK = "#SBATCH"


@dataclass(frozen=True, slots=True)
class BatchScript:
    """A script with the options of its #SBATCH lines, in their order."""

    text: str
    options: Given


def read_script(text: str, name: str) -> BatchScript:
    """Return a script.

    Raises:
        ConfigError: it is no script of a shell or another interpreter, is too large, or has a
            malformed #SBATCH line.

    """
    if len(text.encode(errors="replace")) > SCRIPT_BYTES_MAX:
        raise ConfigError(f"{name}: the script is larger than {SCRIPT_BYTES_MAX // 1024} KiB")
    if not text.startswith("#!"):
        raise ConfigError(f"{name}: the first line of a script has to be like #!/bin/bash")
    if "\r\n" in text:
        raise ConfigError(f"{name}: the lines end as on DOS (\\r\\n), use \\n")
    options: Given = []
    for number, line in enumerate(text.splitlines()[:_LINES_MAX], 1):
        if line.startswith(_MARK) and line[len(_MARK) : len(_MARK) + 1] in (" ", "\t", ""):
            where = f"{name}: line {number}"
            words = split_words(line[len(_MARK) :], where)
            found, rest = read_options(words, where)
            if rest:
                raise ConfigError(f"{where}: {rest[0]!r} is no option")
            options += found
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return BatchScript(text, options)


def split_words(line: str, where: str) -> list[str]:
    """Split the rest of a #SBATCH line into words.

    Raises:
        ConfigError: a quote is not closed.

    """
    words: list[str] = []
    word, quote, begun, index = "", "", False, 0
    while index < len(line):
        letter = line[index]
        index += 1
        if letter == "\\" and quote != "'" and index < len(line):
            word, begun = word + line[index], True
            index += 1
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter in "\"'":
            quote, begun = letter, True
        elif letter == "#":
            break
        elif letter.isspace():
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + letter, True
    if quote:
        raise ConfigError(f"{where}: the quote {quote} is not closed")
    if begun:
        words.append(word)
    return words
