"""The one thing that pyproject.toml cannot say: how to build the C extension."""

from setuptools import Extension, setup

native = Extension(
    "argus._native",
    sources=[
        "native/histogram.c",
        "native/layout_table.c",
        "native/module.c",
        "native/py_phase.c",
        "native/py_segment.c",
        "native/segment.c",
        "native/tracer.c",
    ],
    depends=["native/layout.h", "native/histogram.h", "native/segment.h", "native/tracer.h", "native/python.h"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")],
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit"],
    py_limited_api=True,
)

setup(ext_modules=[native], options={"bdist_wheel": {"py_limited_api": "cp310"}})
