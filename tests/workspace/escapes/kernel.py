"""Attempts to change the machine: mounts, devices, kernel settings, powers."""

from .attempt import Attempt, shell

PROTECTED = "Landlock"


def root_only(name: str, line: str) -> Attempt:
    return Attempt(name=name, script=line, shell=True, control=("root",))


def never(name: str, line: str) -> Attempt:
    """Too harmful, or not possible, without a sandbox."""
    return Attempt(name=name, script=line, shell=True, control=())


KERNEL = [
    root_only("mount", 'mount -t tmpfs none "$OUT" && echo ESCAPED && umount "$OUT"'),
    root_only("bind", 'mount --bind "$PWD" "$OUT/empty" && echo ESCAPED && umount "$OUT/empty"'),
    never("mount again, writable", 'mount -o remount,rw / && echo x > "$OUT/new"'),
    never("mount again, writable, as a bind", 'mount -o remount,bind,rw / && echo x > "$OUT/new"'),
    never("unmount", 'umount -l "$OUT" && echo ESCAPED'),
    shell(
        "namespace of one's own",
        "unshare -Urm sh -c 'mount -o remount,bind,rw /; "
        'mount -t tmpfs none /mnt; echo x > "$OUT/new"\'',
    ),
    shell("namespaces in a namespace", "unshare -Ur unshare -Ur sh -c 'echo x > \"$OUT/new\"'"),
    shell("bubblewrap in a sandbox", "bwrap --bind / / --dev /dev sh -c 'echo x > \"$OUT/new\"'"),
    never("namespace of the first process", "nsenter -t 1 -m -p sh -c 'echo x > \"$OUT/new\"'"),
    root_only("another root", "chroot / sh -c 'echo x > \"$OUT/new\"'"),
    root_only("device node", "mknod disk b 7 0 && echo ESCAPED"),
    root_only("device node outside", 'mknod "$OUT/new" c 1 3'),
    never(
        "disk",
        "for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/mapper/* /dev/dm-*; do "
        '[ -b "$d" ] && (exec 5<> "$d") && echo ESCAPED; done',
    ),
    never(
        "memory of the machine",
        "for d in /dev/mem /dev/kmem /dev/port /proc/kcore; do "
        '[ -e "$d" ] && (exec 5< "$d") && head -c 1 "$d" | grep -q . && echo ESCAPED; done',
    ),
    never(
        "log of the kernel", "[ -c /dev/kmsg ] && echo batten-escape > /dev/kmsg && echo ESCAPED"
    ),
    never("virtual machines", "[ -c /dev/kvm ] && (exec 5<> /dev/kvm) && echo ESCAPED"),
    never("input of the machine", "[ -c /dev/uinput ] && (exec 5> /dev/uinput) && echo ESCAPED"),
    root_only(
        "setting of the kernel",
        "cat /proc/sys/kernel/core_pattern > was; "
        "cat was > /proc/sys/kernel/core_pattern && echo ESCAPED",
    ),
    root_only("caches", "echo 1 > /proc/sys/vm/drop_caches && echo ESCAPED"),
    never("keys of the kernel", "echo h > /proc/sysrq-trigger && echo ESCAPED"),
    root_only(
        "setting of a device",
        "f=/sys/block/$(ls /sys/block | head -1)/queue/read_ahead_kb; "
        "cat $f > was; cat was > $f && echo ESCAPED",
    ),
    never(
        "control group",
        "mkdir /sys/fs/cgroup/batten-escape && echo ESCAPED; rmdir /sys/fs/cgroup/batten-escape",
    ),
    never("leave the control group", "echo $$ > /sys/fs/cgroup/cgroup.procs && echo ESCAPED"),
    never("name of the machine", 'hostname "$(hostname)" && echo ESCAPED'),
    never("clock", "date -s now && echo ESCAPED"),
    never("module", "for m in loop dummy tun; do modprobe $m && echo ESCAPED; done"),
    never("interface", "ip link add batten0 type dummy && echo ESCAPED; ip link del batten0"),
    shell(
        "powers by a program",
        'cp "$(command -v bash)" b; chmod 6755 b; sudo -n true 2>/dev/null; '
        "./b -p -c 'echo x > \"$OUT/new\"'",
    ),
    Attempt(
        name="powers",
        script="""
with open("/proc/self/status") as status:
    held = {one.split()[0]: int(one.split()[1], 16) for one in status if one.startswith("Cap")}
harmful = [1, 12, 13, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 29, 33, 34, 37, 38, 39, 40]
escaped(held["CapEff:"] & sum(1 << one for one in harmful if one != 1))
""",
        control=("root",),
    ),
    Attempt(
        name="powers by a program of root",
        script="""
import subprocess
print(subprocess.run(["sh", "-c", "grep CapBnd /proc/self/status"], capture_output=True).stdout)
subprocess.run(["mount", "-t", "tmpfs", "none", OUT])
if os.path.ismount(OUT):
    escaped(True)
    subprocess.run(["umount", OUT])
""",
        control=("root",),
    ),
    Attempt(
        name="programs in the kernel",
        script="""
number = call(321 if X86 else 280, 0, struct.pack("=IIIIQ", 2, 4, 4, 1, 0).ljust(128, b"\\0"), 128)
escaped(number >= 0)
""",
        control=("root",),
    ),
    Attempt(
        name="counters of another process",
        script="""
about = struct.pack("=IIQ", 1, 128, 1).ljust(128, b"\\0")
escaped(call(298 if X86 else 241, about, VICTIM, -1, -1, 0) >= 0)
""",
        control=(),
    ),
    Attempt(
        name="ports of the processor",
        script="escaped(X86 and libc.iopl(3) == 0)",
        control=(),
    ),
    Attempt(
        name="Batten's state in the workspace",
        script="""
with open(os.environ["STATE"] + "/key", "w") as file:
    file.write("X")
""",
    ),
    shell(
        "way to Batten's state in the workspace",
        'mv "$(dirname "$STATE")" moved; mkdir -p "$STATE"; echo X > "$STATE/key"',
    ),
    never(
        "bubblewrap for the next start",
        'mkdir -p bin; printf "#!/bin/sh\\ntouch $OUT/new\\n" > bin/bwrap; chmod +x bin/bwrap',
    ),
    never(
        "programs for the next start",
        "mkdir -p bin; for p in sh rg git python3 bash; do "
        'printf "#!/bin/bash\\n/bin/touch $OUT/new\\n" > bin/$p; chmod +x bin/$p; done',
    ),
    Attempt(
        name="more processes than allowed",
        script="""
children = []
try:
    for _ in range(400):
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        children.append(child)
finally:
    for child in children:
        os.kill(child, 9)
escaped(len(children) == 400)
""",
        gap="not for root",
        open_in=("bwrap", "landlock"),
        open_for=("root",),
    ),
    shell(
        "more in one file than allowed",
        'head -c 9000000 /dev/zero > big; [ "$(stat -c %s big)" -ge 9000000 ] && echo ESCAPED',
    ),
    shell("more memory than allowed", '"$PY" -c "x = bytearray(900 << 20)" && echo ESCAPED'),
    shell("more open files than allowed", "ulimit -n 5000 && echo ESCAPED"),
    shell(
        "no limits",
        "ulimit -f unlimited; ulimit -d unlimited; head -c 9000000 /dev/zero > big; "
        '[ "$(stat -c %s big)" -ge 9000000 ] && echo ESCAPED',
    ),
]
