# Spack: put this file into a site's repository, as packages/cpsched/package.py. It installs the offline bundle (`make
# bundle PYTHON=python3.13`), since Spack has no Python package of OR-Tools. The bundle is built by the site and fetched
# from no host: rename it to cpsched-VERSION.tar.gz, run Spack in its folder, or put it into a Spack mirror. It has no
# published checksum: `spack install --no-checksum cpsched`.
import os

from spack.package import *


class Cpsched(Package):
    """An external scheduler for Slurm and PBS, and the simulator of its decisions."""

    manual_download = True
    license("MIT")

    version("0.1.0")

    depends_on("python@3.11:3.14", type=("build", "run"))  # the release that the bundle was built for

    def url_for_version(self, version):
        return f"file://{os.getcwd()}/cpsched-{version}.tar.gz"

    def install(self, spec, prefix):
        environment = join_path(
            prefix.libexec, "cpsched"
        )  # install.py wants a new folder, and Spack writes into the prefix
        spec["python"].command("install.py", environment)
        mkdirp(prefix.bin)
        symlink(join_path(environment, "bin", "cpsched"), prefix.bin.cpsched)
