# SPDX-License-Identifier: Apache-2.0
"""A shim that makes files of this machine behave as those of a network file system.

It is the text of a program's first lines, or of a sitecustomize.py, before llmb is imported. In
that process exclusive creation is not atomic, times are whole seconds, and what others change in a
folder is seen only after LAG seconds. Hard links and renames stay atomic, as they are on NFS, and
a process's own change of a folder shows it the folder anew, as a client does.
"""

SHIM = """
import errno, os, random, sys, time
from pathlib import Path
real = {name: getattr(os, name) for name in ("open", "stat", "listdir", "link", "unlink", "rename", "replace")}
chance, seen, LAG = random.Random(os.getpid()), {}, 5.0

def open_(path, flags, mode=0o777, **more):
    if flags & os.O_EXCL and isinstance(path, (str, os.PathLike)):
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        time.sleep(chance.uniform(0, 0.02))
        flags &= ~os.O_EXCL
    seen.pop(os.path.dirname(os.fspath(path)) if not isinstance(path, int) else "", None)
    return real["open"](path, flags, mode, **more)

def stat(path, **more):
    found = real["stat"](path, **more)
    whole = int(found.st_mtime)
    names = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
    names |= {"st_mtime": float(whole), "st_mtime_ns": whole * 10**9}
    return os.stat_result(tuple(found)[:10], names)

def listdir(path="."):
    key = os.fspath(path)
    if key in seen and time.monotonic() - seen[key][0] < LAG:
        return [*seen[key][1]]
    seen[key] = time.monotonic(), real["listdir"](path)
    return [*seen[key][1]]

def changing(name):
    def change(*arguments, **more):
        for argument in arguments:
            seen.pop(os.path.dirname(os.fspath(argument)), None)
        return real[name](*arguments, **more)
    return change

os.open, os.stat, os.listdir = open_, stat, listdir
for name in ("link", "unlink", "rename", "replace"):
    setattr(os, name, changing(name))
"""
