# Spack: copy this file to packages/cpsched/package.py in a site's repository. It installs the offline bundle (`make
# bundle PYTHON=python3.13`), because Spack has no Python package for OR-Tools. The site builds the bundle itself and
# renames it to cpsched-VERSION.tar.gz. Run Spack in the bundle's folder, or put the bundle in a Spack mirror. It has no
# published checksum: `spack install --no-checksum cpsched`.
import os

from spack.package import *


class Cpsched(Package):
    """An external scheduler for Slurm and PBS, and the simulator of its decisions."""

    manual_download = True
    license("MIT")

    version("0.1.0")

    depends_on("python@3.11:3.14", type=("build", "run"))  # the release for which the bundle was built

    def url_for_version(self, version):
        return f"file://{os.getcwd()}/cpsched-{version}.tar.gz"

    def install(self, spec, prefix):
        # install.py requires a new folder, and Spack has already written to the prefix
        environment = join_path(prefix.libexec, "cpsched")
        spec["python"].command("install.py", environment)
        mkdirp(prefix.bin)
        symlink(join_path(environment, "bin", "cpsched"), prefix.bin.cpsched)
