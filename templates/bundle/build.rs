// Compiles the C of @NAME@ for the target. Without dependencies, so it needs no network.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

// The core that the C was compiled and measured for, and the options that select it.
const ARCHITECTURE: &str = "@ISA@";
const CORE_FLAGS: &[&str] = &[@RUST_FLAGS@];
const RISCV_GCC: &str = "riscv64-unknown-elf-gcc";
const SOURCES: &[&str] = &[
    "@SOURCE_DIR@/@NAME@.c",
    "@SOURCE_DIR@/@NAME@_kernels.c",
    "@SOURCE_DIR@/@NAME@_weights.c",
    "@SELFTEST_DIR@/@NAME@_selftest.c",
];

fn main() {
    let target = variable("TARGET");
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let compiler = compiler(&target);
    let mut objects = Vec::new();
    for source in SOURCES {
        let object = out.join(source.replace('/', "_")).with_extension("o");
        let mut command = Command::new(&compiler);
        command.args(["-std=c99", "@OPTIMIZATION_FLAG@", "-ffunction-sections", "-fdata-sections"]);
        if compiler == RISCV_GCC {
            command.arg("--specs=picolibc.specs"); // Debian's has the headers of C there
        }
        command.args(flags(&target)).arg("-I").arg(root.join("@INCLUDE_DIR@"));
        command.arg("-c").arg(root.join(source)).arg("-o").arg(&object);
        run(command, &compiler);
        objects.push(object);
    }
    let library = out.join("lib@NAME@_c.a");
    let _ = std::fs::remove_file(&library);
    let archiver = archiver(&target, &compiler);
    let mut command = Command::new(&archiver);
    command.arg("crs").arg(&library).args(&objects);
    run(command, &archiver);
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=@NAME@_c");
    for folder in ["@SOURCE_DIR@", "@INCLUDE_DIR@", "@SELFTEST_DIR@", "build.rs"] {
        println!("cargo:rerun-if-changed={}", folder);
    }
    for name in names("CC", &target).iter().chain(&names("AR", &target)) {
        println!("cargo:rerun-if-env-changed={}", name);
    }
}

// Whether the C was compiled for this target's instruction set: thumbv7em is armv7e-m.
fn is_its_core(target: &str) -> bool {
    let own = ARCHITECTURE.replace('-', "").replace("8.1", "8");
    let first = target.split('-').next().unwrap_or("");
    own == first.replace("thumbv", "armv").replace("riscv32", "rv32")
}

// What selects the target's processor; for another core than ours, GCC compiles plain C.
fn flags(target: &str) -> Vec<String> {
    let first = target.split('-').next().unwrap_or("");
    let is_hard = target.ends_with("hf");
    let mut found: Vec<String> = Vec::new();
    if is_its_core(target) {
        for flag in CORE_FLAGS {
            let is_unit = flag.starts_with("-mfpu");
            let is_by_target = flag.starts_with("-mfloat-abi") || (is_unit && !is_hard);
            if flag.starts_with("--specs") || (first.starts_with("thumb") && is_by_target) {
                continue;
            }
            found.push((*flag).to_string());
        }
        if is_hard && !CORE_FLAGS.iter().any(|flag| *flag == "-mfloat-abi=hard") {
            fail("the C was compiled for a chip without a floating-point unit; take the target without hf");
        }
    } else if first.starts_with("thumb") {
        let (core, unit) = match first {
            "thumbv6m" => ("cortex-m0", ""),
            "thumbv7m" => ("cortex-m3", ""),
            "thumbv7em" => ("cortex-m4", "-mfpu=fpv4-sp-d16"),
            "thumbv8m.base" => ("cortex-m23", ""),
            "thumbv8m.main" => ("cortex-m33", "-mfpu=fpv5-sp-d16"),
            _ => fail(&format!("build.rs does not know the target {}; add it there", target)),
        };
        found.push(format!("-mcpu={}", core));
        found.push("-mthumb".to_string());
        if is_hard {
            found.push(unit.to_string());
        }
    } else if first.starts_with("riscv32") {
        let letters = first.replace("riscv32", "rv32");
        let has_float = letters.contains('f') || letters.contains('g');
        found.push(format!("-march={}", letters));
        found.push(format!("-mabi={}", if has_float { "ilp32f" } else { "ilp32" }));
    }
    if first.starts_with("thumb") {
        found.push(format!("-mfloat-abi={}", if is_hard { "hard" } else { "soft" }));
    }
    if target.contains("-none") {
        found.push("-ffreestanding".to_string());
    } else {
        found.push("-fPIC".to_string());
    }
    found
}

fn names(what: &str, target: &str) -> Vec<String> {
    let plain = target.replace('-', "_");
    vec![
        format!("{}_{}", what, target),
        format!("{}_{}", what, plain),
        format!("TARGET_{}", what),
        what.to_string(),
    ]
}

fn chosen(what: &str, target: &str) -> Option<String> {
    names(what, target).iter().find_map(|name| env::var(name).ok())
}

fn compiler(target: &str) -> String {
    let usual = if target.starts_with("thumb") {
        "arm-none-eabi-gcc"
    } else if target.starts_with("riscv32") {
        RISCV_GCC
    } else {
        "cc"
    };
    chosen("CC", target).unwrap_or_else(|| usual.to_string())
}

// Beside the compiler: arm-none-eabi-gcc has arm-none-eabi-ar.
fn archiver(target: &str, compiler: &str) -> String {
    let beside = Path::new(compiler).with_extension("").display().to_string();
    let usual = match beside.strip_suffix("-gcc") {
        Some(prefix) => format!("{}-ar", prefix),
        None => "ar".to_string(),
    };
    chosen("AR", target).unwrap_or(usual)
}

fn run(mut command: Command, program: &str) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{} ended with {}", program, status)),
        Err(error) => fail(&format!("cannot run {} ({}); install it, or set CC and AR", program, error)),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("cargo does not set {}", name)))
}

fn fail(sentence: &str) -> ! {
    eprintln!("@NAME@: {}", sentence);
    exit(1)
}
