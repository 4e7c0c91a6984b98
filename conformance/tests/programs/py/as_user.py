"""Runs one of peer.py's calls as another user: uid, then the call."""

import os
import runpy
import sys

uid = int(sys.argv[1])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
sys.argv = ["peer.py", *sys.argv[2:]]
runpy.run_path(os.path.join(os.path.dirname(__file__), "peer.py"), run_name="__main__")
