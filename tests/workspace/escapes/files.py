"""Attempts to change files outside the workspace."""

from .attempt import Attempt, shell

METADATA = "modes, owners, times"
LOCKS = "locks on files"

FILES = [
    shell("new file", 'echo x > "$OUT/new"'),
    shell("overwrite", 'echo x > "$OUT/kept"'),
    shell("append", 'echo x >> "$OUT/kept"'),
    shell("write in place", 'echo x | dd of="$OUT/kept" conv=notrunc status=none'),
    shell("truncate", 'truncate -s 0 "$OUT/kept"'),
    shell("grow", 'truncate -s 100 "$OUT/kept"'),
    shell("allocate", 'fallocate -l 100 "$OUT/kept"'),
    shell("edit in place", 'sed -i s/as/AS/ "$OUT/kept"'),
    shell("copy over", 'cp "$PWD/mine" "$OUT/kept"'),
    shell("clone over", 'cp --reflink=auto "$PWD/mine" "$OUT/kept"'),
    shell("remove", 'rm -f "$OUT/kept"'),
    shell("remove tree", 'rm -rf "$OUT/folder"'),
    shell("remove empty folder", 'rmdir "$OUT/empty"'),
    shell("new folder", 'mkdir "$OUT/new"'),
    shell("new pipe", 'mkfifo "$OUT/new"'),
    shell("new link", 'ln -s /etc "$OUT/new"'),
    shell("move in", 'mv "$OUT/kept" "$PWD/taken"'),
    shell("move out", 'mv "$PWD/mine" "$OUT/new"'),
    shell("move over", 'mv -f "$PWD/mine" "$OUT/kept"'),
    shell("rename", 'mv "$OUT/kept" "$OUT/other"'),
    shell("hard link in, then write", 'ln "$OUT/kept" l && echo x > l'),
    shell("hard link out", 'ln "$PWD/mine" "$OUT/new"'),
    shell("link to the folder, then write", 'ln -s "$OUT" way && echo x > way/new'),
    shell("link to a file, then write", 'ln -s "$OUT/kept" way && echo x > way'),
    shell("link to a missing file, then write", 'ln -s "$OUT/new" way && echo x > way'),
    shell("relative path", 'cd ..; echo x > "./$(basename "$OUT")/new"'),
    shell("root of a process", 'echo x > "/proc/self/root$OUT/new"'),
    shell("root of our parent", 'echo x > "/proc/$PPID/root$OUT/new"', control=("root",)),
    shell("root of the first process", 'echo x > "/proc/1/root$OUT/new"', control=()),
    shell("directory of a process", 'cd "$OUT" && echo x > /proc/self/cwd/new'),
    shell("descriptor opened again", 'exec 5< "$OUT/kept"; echo x > /proc/self/fd/5'),
    shell("descriptor as a device", 'exec 5< "$OUT/kept"; echo x > /dev/fd/5'),
    shell("archive", 'echo x > kept; tar c kept | tar x -C "$OUT"'),
    shell(
        "patch",
        "printf '%s\\n' '--- kept' '+++ kept' '@@ -1 +1 @@' '-as it was' '+new' "
        '| patch -s -d "$OUT"',
    ),
    shell("git", 'git init -q "$OUT/new"'),
    shell("script of our start", 'echo x >> "$OUT/.bashrc"'),
    shell("home directory", "cd; echo x > new"),
    shell("mode", 'chmod 600 "$OUT/kept"', METADATA, "landlock"),
    shell("mode of a folder", 'chmod 700 "$OUT"', METADATA, "landlock"),
    shell("times", 'touch -d 2001-01-01 "$OUT/kept"', METADATA, "landlock"),
    Attempt(
        name="owner",
        script="os.chown(KEPT, 1234, 1234)",
        gap=METADATA,
        open_in=("landlock",),
        control=("root",),
    ),
    Attempt(
        name="group",
        script="os.chown(KEPT, -1, os.getgid() + 1)",
        gap=METADATA,
        open_in=("landlock",),
        control=("root",),
    ),
    Attempt(name="extended attribute", script="os.setxattr(KEPT, 'user.mark', b'x')"),
    Attempt(
        name="extended attribute by descriptor",
        script="os.setxattr(os.open(KEPT, os.O_RDONLY), 'user.mark', b'x')",
    ),
    Attempt(
        name="flags",
        script="""
file = os.open(KEPT, os.O_RDONLY)
flags = bytearray(8)
fcntl.ioctl(file, 0x80086601, flags)
fcntl.ioctl(file, 0x40086602, bytes([flags[0] | 0x40]) + bytes(flags[1:]))
""",
    ),
    Attempt(
        name="flags by a call",
        script="""
about = ctypes.create_string_buffer(24)
call(468, -100, KEPT.encode(), about, 24, 0)
call(469, -100, KEPT.encode(), struct.pack("=Q", 0x80) + about.raw[8:], 24, 0)
""",
        control=(),
    ),
    Attempt(
        name="lock",
        script="""
fcntl.flock(os.open(KEPT, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
escaped(True)
""",
        gap=LOCKS,
        open_in=("bwrap", "landlock"),
    ),
    Attempt(
        name="exchange",
        script="""
open("ours", "w").write("x")
call(316 if X86 else 276, -100, b"ours", -100, KEPT.encode(), 2)
""",
    ),
    Attempt(
        name="nameless file, linked",
        script="""
file = os.open(".", os.O_TMPFILE | os.O_RDWR)
os.write(file, b"x")
libc.linkat(-100, b"/proc/self/fd/%d" % file, -100, OUT.encode() + b"/new", 0x400)
""",
    ),
    Attempt(
        name="nameless file outside",
        script="""
file = os.open(OUT, os.O_TMPFILE | os.O_RDWR)
libc.linkat(-100, b"/proc/self/fd/%d" % file, -100, OUT.encode() + b"/new", 0x400)
""",
    ),
    Attempt(
        name="socket in a folder",
        script="socket.socket(socket.AF_UNIX).bind(OUT + '/new')",
    ),
    Attempt(
        name="shared mapping",
        script="""
file = os.open(KEPT, os.O_RDWR)
mmap.mmap(file, 0)[:1] = b"X"
""",
    ),
    Attempt(
        name="shared mapping of a read-only file",
        script="""
file = os.open(KEPT, os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, 4096, 1, 1, file, 0)
libc.mprotect(ctypes.c_void_p(at), 4096, 3) or ctypes.memset(at, 88, 1)
""",
        control=(),
    ),
    Attempt(
        name="link swapped while it is used",
        script="""
import threading
os.mkdir("d"); os.mkdir("e"); os.symlink(OUT, "l")
done = time.monotonic() + 1.0
def swap():
    while time.monotonic() < done:
        os.rename("d", "x"); os.rename("l", "d"); os.rename("d", "l"); os.rename("x", "d")
threading.Thread(target=swap).start()
while time.monotonic() < done:
    try:
        open("d/new", "w").close()
    except OSError:
        pass
""",
    ),
    Attempt(
        name="handle of a file",
        script="""
handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
mount = ctypes.c_int()
call(303 if X86 else 264, -100, OUT.encode(), handle, ctypes.byref(mount), 0)
folder = call(304 if X86 else 265, os.open("/", os.O_RDONLY), handle, os.O_RDONLY)
if folder >= 0:
    os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
""",
        control=("root",),
    ),
    Attempt(
        name="splice into a file",
        script="""
source, sink = os.pipe()
os.write(sink, b"x")
os.splice(source, os.open(KEPT, os.O_WRONLY), 1)
""",
    ),
    Attempt(
        name="copy in the kernel",
        script="os.copy_file_range(os.open('mine', os.O_RDONLY), os.open(KEPT, os.O_WRONLY), 5)",
    ),
    Attempt(
        name="file of another user's name",
        script="""
os.setgid(65534); os.setuid(65534)
open("/tmp/" + os.environ["MARK"], "w").close()
""",
        control=("root",),
    ),
]
"""The workspace has a file `mine`."""
