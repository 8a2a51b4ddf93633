"""The one thing that pyproject.toml cannot say: how to build the C extension."""

import re
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
NATIVE = HERE / "native"
VERSION = re.search(
    r'^version = "(.+)"$', (HERE / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
)[1]

native = Extension(
    "argus._native",
    sources=sorted(f"native/{path.name}" for path in NATIVE.glob("*.c")),
    depends=sorted(f"native/{path.name}" for path in NATIVE.glob("*.h")),
    define_macros=[("Py_LIMITED_API", "0x030A0000"), ("ARGUS_VERSION", f'"{VERSION}"')],
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit"],
    py_limited_api=True,
)

setup(ext_modules=[native], options={"bdist_wheel": {"py_limited_api": "cp310"}})
