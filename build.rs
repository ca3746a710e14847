//! Compiles the kernel side (`ebpf/`) into a skeleton, with the drop reasons of the Rust list.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use libbpf_cargo::SkeletonBuilder;

#[allow(dead_code)]
mod reasons {
    include!("src/dataplane/drop_reason.rs");
}

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("drop_reasons.h"), drop_reasons_header()).expect("OUT_DIR is writable");

    compile("ebpf/symphony.bpf.c", &out)
        .generate(out.join("symphony.skel.rs"))
        .expect("a skeleton can be made of the kernel side");
    compile("bench/source/source.bpf.c", &out); // the packet source of bench/forward.sh

    println!("cargo:rerun-if-changed=ebpf");
    println!("cargo:rerun-if-changed=bench/source/source.bpf.c");
    println!("cargo:rerun-if-changed=src/dataplane/drop_reason.rs");
}

/// Compiles `DIR/NAME.bpf.c` to `out/NAME.bpf.o`.
fn compile(source: &str, out: &Path) -> SkeletonBuilder {
    let object = out.join(Path::new(source).file_stem().expect("it is a file")).with_extension("bpf.o");
    let arch_include = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it"));
    let mut builder = SkeletonBuilder::new();
    builder
        .source(source)
        .obj(object)
        .clang_args([
            OsStr::new("-mcpu=v3"), // 64-bit atomics
            OsStr::new("-Wall"),
            OsStr::new("-Werror"),
            OsStr::new("-I"),
            out.as_os_str(),
            OsStr::new("-I"),
            OsStr::new(&arch_include),
        ])
        .build()
        .expect("the kernel side compiles; Debian: apt-get install clang libelf-dev zlib1g-dev pkg-config");
    builder
}

fn drop_reasons_header() -> String {
    let mut header =
        String::from("/* Made by build.rs from src/dataplane/drop_reason.rs. */\n#pragma once\nenum drop_reason {\n");
    for reason in reasons::DropReason::ALL {
        header += &format!("\tDROP_{},\n", reason.label().to_uppercase());
    }
    header + "\tDROP_REASONS,\n};\n"
}
