"""The program of docs/embedding.md, built outside the tree against an installed adtrain that was moved, and run on two CPU
ranks under every launcher of one host."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import h5py

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/embedding.md").read_text()
CMAKE, MPIRUN, TORCHRUN = (os.environ[name] for name in ("CMAKE", "MPIRUN", "TORCHRUN"))
COMPILING = 800  # seconds: beside other tests on two cores a program that ccache does not know has taken over 200


def block(language, heading="A program"):
    """The only code in that language below the heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)
    assert len(found) == 1, f"expected one ```{language} below {heading} in docs/embedding.md, found {len(found)}"
    return found[0]


def run(*command, code=0, timeout=200, **more):
    """Standard output and error of a command, which must end with `code`; `timeout` in seconds."""
    finished = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, **more)
    assert finished.returncode == code, f"{command} ended with {finished.returncode}:\n{finished.stdout}"
    return finished.stdout


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="adtrain-embedding-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run(CMAKE, "--install", os.environ["BUILD"], "--prefix", cls.folder / "first")
        cls.prefix = (cls.folder / "first").rename(cls.folder / "moved")
        cls.program = cls.built("project", "train.cpp", "A program") / "train"
        cls.plugin = cls.built("plugin", "mine.cpp", "Plug-ins") / "libmine.so"

    @classmethod
    def built(cls, name, source, heading):
        """The folder of what the page shows below the heading."""
        project = cls.folder / name
        project.mkdir()
        (project / source).write_text(block("cpp", heading))
        (project / "CMakeLists.txt").write_text(block("cmake", heading))
        cls.compile(project, f"-DCMAKE_PREFIX_PATH={cls.prefix}")
        return project / "build"

    @classmethod
    def compile(cls, project, *options, target="all"):
        """With options for CMake that say where adtrain is, or libtorch."""
        run(CMAKE, "-B", project / "build", "-S", project, *options,
            f"-DCMAKE_CXX_COMPILER={os.environ['CXX']}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache') or ''}")
        # The folder is another one each time, and must not tell the same program apart.
        run(CMAKE, "--build", project / "build", "--target", target, timeout=COMPILING,
            env=os.environ | {"CCACHE_BASEDIR": str(cls.folder)})

    def train(self, name, *launcher, steps="0 to 200", ranks=2, over="Gloo"):
        """The parameters after the last step, as they lie in the file."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        output = run(*launcher, self.program, cwd=folder, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        self.assertRegex(output, rf"steps {steps} on {ranks} ranks over {over}: loss 0\.0\d")
        return (folder / "checkpoints/step-200/model.safetensors").read_bytes()

    def test_the_program_is_short(self):
        self.assertLessEqual(len(block("cpp").splitlines()), 60)

    def test_trains_alike_under_every_launcher_and_resumes_exactly(self):
        torchrun = [TORCHRUN, "--standalone", "--no-python", "--nproc-per-node", 2]
        whole = self.train("torchrun", *torchrun)
        shutil.rmtree(self.folder / "torchrun/checkpoints/step-200")  # as if it had been killed before
        self.assertEqual(self.train("torchrun", *torchrun, steps="150 to 200"), whole)
        mpirun = [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", 2]
        self.assertEqual(self.train("mpirun", *mpirun, over="MPI"), whole)
        launch = [self.prefix / "bin/adtrain", "launch", "--nproc", 2, "--logs", "logs", "--program"]
        self.assertEqual(self.train("launch", *launch), whole)
        self.train("alone", ranks=1, over="none")

    def test_histories_are_read_by_the_reader_that_path_names(self):
        project = self.folder / "histories"
        project.mkdir()
        (project / "returns.cpp").write_text(block("cpp", "Histories"))
        (project / "CMakeLists.txt").write_text(block("cmake").replace("(train ", "(returns ").replace("train.cpp", "returns.cpp"))
        self.compile(project, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        reader = project / "adtrain-history-reader"
        reader.write_text(f"#!/bin/sh\ntouch {project}/started\nexec {self.prefix}/bin/adtrain-history-reader\n")
        reader.chmod(0o755)
        history = ROOT / "data/history_darkroom_PPO_alg-seed0.hdf5"
        printed = run(project / "build/returns", history, env={"PATH": f"{project}:/usr/bin:/bin"})
        self.assertTrue((project / "started").exists())
        rows = re.findall(r"^task (\d+): first episode ([\d.]+), last ([\d.]+)$", printed, re.M)
        self.assertEqual([int(row[0]) for row in rows], list(range(49)))
        with h5py.File(history) as file:
            for task, row in enumerate(rows):
                rewards = file[f"{task}/rewards"][()].reshape(50, 20, 4).sum(1).mean(1)
                self.assertEqual([float(value) for value in row[1:]], [rewards[0], rewards[-1]])

    def adtrain(self, *arguments, launcher=(), code=0, cwd=None):
        return run(*launcher, self.prefix / "bin/adtrain", *arguments, cwd=cwd or self.folder / "plugin", code=code,
                   env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})

    def test_a_plugin_adds_a_task_family_and_a_network(self):
        folder = self.folder / "plugin"
        (folder / "config.yaml").write_text("""\
env: corridor
grid_size: 7
train_env_ratio: 0.7
n_stream: 4
n_steps: 24
total_source_timesteps: 1920
batch_size: 32
n_epochs: 2
model: average
loss_positions: all
tf_n_embd: 16
n_transit: 20
train_timesteps: 6
train_batch_size: 8
train_source_timesteps: 480
train_n_stream: 2
ckpt_interval: 3
eval_interval: 3
eval_episodes: 3
eval_repeats: 1
run_name: mine
""")
        collected = self.adtrain("collect", "config.yaml", "--plugin", self.plugin)
        self.assertIn("7 of corridor", collected)
        mpirun = [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", 2]
        self.adtrain("config.yaml", "--plugin", "build/libmine.so", "--stop-after", 3, launcher=mpirun, code=75)
        saved = folder / "runs/mine/config.yaml"
        self.assertIn(f"plugins: {self.plugin}\n", saved.read_text())
        self.adtrain(saved, "--resume", launcher=[TORCHRUN, "--standalone", "--no-python", "--nproc-per-node", 2])
        self.assertTrue((folder / "runs/mine/checkpoints/step-6/model.safetensors").exists())
        self.assertIn(b'"past.weight"', (folder / "runs/mine/checkpoints/step-6/model.safetensors").read_bytes()[:4096])
        # The same run at once learns the same.
        self.adtrain("config.yaml", "--plugin", self.plugin, "--set", "run_name=whole", launcher=mpirun)
        whole, resumed = (folder / f"runs/{name}/checkpoints/step-6/model.safetensors" for name in ("whole", "mine"))
        self.assertEqual(whole.read_bytes(), resumed.read_bytes())
        evaluated = self.adtrain("evaluate", "runs/mine")
        self.assertIn("of corridor", evaluated)
        self.assertIn("in-context return", evaluated)

    def test_what_is_wrong_with_a_plugin_is_said(self):
        broken = self.folder / "broken"
        broken.mkdir()
        include = self.prefix / "include"
        torch = pathlib.Path(os.environ["TORCH"]) / "include"

        def compiled(name, text):
            (broken / f"{name}.cpp").write_text(text)
            run(os.environ["CXX"], "-std=c++20", "-shared", "-fPIC", "-I", include, "-isystem", torch, "-isystem",
                torch / "torch/csrc/api/include", broken / f"{name}.cpp", "-o", broken / f"{name}.so")
            return broken / f"{name}.so"

        (broken / "config.yaml").write_text("env: darkroom\n")
        (broken / "text.so").write_text("no shared object\n")

        def refusal(*plugins, config="config.yaml", overrides=()):
            options = [word for plugin in plugins for word in ("--plugin", plugin)]
            options += [word for assignment in overrides for word in ("--set", assignment)]
            return re.sub(r"\s+", " ", self.adtrain("validate", config, *options, code=2, cwd=broken))

        head = "#include <adtrain/plugin.h>\n"
        self.assertIn("nowhere.so does not exist; expected a shared object", refusal("nowhere.so"))
        self.assertIn("text.so cannot be loaded", refusal("text.so"))
        self.assertIn("has no function adtrain_plugin_interface",
                      refusal(compiled("foreign", "int number() { return 1; }\n")))
        old = compiled("old", head + 'extern "C" int64_t adtrain_plugin_interface() { return 7002003; }\n'
                       'extern "C" void adtrain_plugin(adtrain::PluginRegistry&) {}\n')
        self.assertIn("was built for interface 7 and libtorch 2.3; expected interface 1", refusal(old))
        empty = compiled("empty", head + "ADTRAIN_PLUGIN(registry) { (void)registry; }\n")
        self.assertIn("empty.so adds nothing", refusal(empty))
        thrown = compiled("thrown", head + '#include <stdexcept>\n'
                          'ADTRAIN_PLUGIN(registry) { (void)registry; throw std::runtime_error("no licence"); }\n')
        self.assertIn("failed while it was loaded: no licence", refusal(thrown))
        taken = compiled("taken", head + 'ADTRAIN_PLUGIN(registry) { registry.add_environment("DarkRoom", nullptr); }\n')
        self.assertIn("the task family 'DarkRoom', a name that adtrain itself has taken", refusal(taken))
        twice = compiled("twice", head + 'ADTRAIN_PLUGIN(registry) { registry.add_network("average", nullptr); }\n')
        self.assertIn(f"a name that {self.plugin} has taken", refusal(self.plugin, twice))
        self.assertIn("did you mean corridor", refusal(self.plugin, overrides=["env=coridor"]))
        self.assertIn("found 'corridor'; expected", refusal(overrides=["env=corridor"]))

    def test_installed_programs_run_where_they_were_moved_to(self):
        adtrain = self.prefix / "bin/adtrain"
        version = re.search(r"project\(adtrain VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertRegex(run(adtrain, "--version"), rf"^adtrain {re.escape(version)} \(.*\)\nlibtorch ")
        search = run("readelf", "-d", adtrain)
        self.assertIn("$ORIGIN", search)
        self.assertNotIn(str(self.folder / "first"), search)
        self.assertNotIn(os.environ["BUILD"], search)
        self.assertIn("a part of adtrain", run(self.prefix / "bin/adtrain-history-reader", code=2))
        self.assertIn("--program: found nowhere", run(adtrain, "launch", "--program", "nowhere", code=2))
        run(adtrain, "validate", self.prefix / "share/adtrain/configs/quickstart.yaml")

    def test_the_python_packages_sources_are_installed(self):
        def files(folder):
            return {path.relative_to(folder) for path in folder.glob("**/*") if "__pycache__" not in path.parts}

        self.assertEqual(files(self.prefix / "share/adtrain/python"), files(ROOT / "src/python"))

    def test_the_tree_can_be_added_to_a_project(self):
        """Configured whole, and the page's program compiled; to link it would be to build the library a second time."""
        project = self.folder / "added"
        project.mkdir()
        (project / "train.cpp").write_text(block("cpp"))
        (project / "CMakeLists.txt").write_text(block("cmake", "In the tree of a project").replace("third_party/adtrain", f"{ROOT} adtrain"))
        self.compile(project, "-G", "Ninja", f"-DTorch_DIR={os.environ['TORCH']}/share/cmake/Torch",
                     target="CMakeFiles/train.dir/train.cpp.o")
        targets = run(CMAKE, "--build", project / "build", "--target", "help")
        names = re.findall(r"^([A-Za-z_][\w-]*): phony$", targets, re.M)
        ours = {name for name in names if name not in ("all", "train", "codegen", "edit_cache", "rebuild_cache", "list_install_components")}
        self.assertIn("adtrain_framework", ours)
        self.assertEqual({name for name in ours if not re.match(r"(lib)?adtrain", name)}, set())

    def test_the_package_says_what_is_wrong_with_a_libtorch(self):
        project = self.folder / "wrong"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(block("cmake"))
        (project / "train.cpp").write_text("int main() {}\n")
        torch = project / "torch"
        (torch / "share/cmake/Torch").mkdir(parents=True)
        (torch / "share/cmake/Torch/TorchConfig.cmake").touch()
        (torch / "include/torch/headeronly").mkdir(parents=True)
        (torch / "include/torch/headeronly/version.h").write_text("#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 3\n")
        output = run(CMAKE, "-B", project / "build", "-S", project, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                     f"-DTorch_DIR={torch}/share/cmake/Torch", code=1)
        self.assertIn("libtorch 1.3; adtrain was built with", re.sub(r"\s+", " ", output))


if __name__ == "__main__":
    unittest.main(verbosity=2)
