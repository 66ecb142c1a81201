//! The golden vectors through the C, and the first of them through the Rust.

use std::alloc::{alloc_zeroed, Layout};

// Without a copy on the stack, which a large arena would not fit.
fn zeroed<T>() -> Box<T> {
    // SAFETY: for arrays of numbers, all bits 0 is a value.
    unsafe { Box::from_raw(alloc_zeroed(Layout::new::<T>()).cast::<T>()) }
}

fn boxed<T>(bytes: &[u8]) -> Box<T> {
    let mut made = zeroed::<T>();
    assert_eq!(bytes.len(), std::mem::size_of::<T>());
    // SAFETY: of the same size, and T is an array of numbers.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&mut *made as *mut T).cast::<u8>(), bytes.len()) }
    made
}

fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: T is an array of numbers, without padding.
    unsafe { std::slice::from_raw_parts((value as *const T).cast::<u8>(), std::mem::size_of::<T>()) }
}

// Below 0: every byte must be equal; else elements are of f32, and may differ by that.
fn check(got: &[u8], expected: &[u8], allowed: f32) {
    if allowed < 0.0 {
        assert_eq!(got, expected);
        return;
    }
    for (one, other) in got.chunks(4).zip(expected.chunks(4)) {
        let a = f32::from_le_bytes([one[0], one[1], one[2], one[3]]);
        let b = f32::from_le_bytes([other[0], other[1], other[2], other[3]]);
        assert!(one == other || (a - b).abs() <= allowed, "{} is not {}", a, b);
    }
}

@RUST_VECTORS@

#[test]
fn golden_vectors() {
    let mut text = String::new();
@RUST_POOL_LETS@    let passed = @NAME@::selftest(&mut zeroed()@RUST_POOL_GIVEN@, |character| text.push(character as char));
    assert!(passed, "{}", text);
    print!("{}", text);
}

#[test]
fn run_takes_and_gives_arrays() {
@RUST_LET@    let mut arena = zeroed();
@RUST_POOL_LETS@    let mut model = @NAME@::Model::new(&mut arena@RUST_POOL_GIVEN@);
    model.run(@RUST_GIVEN@);
@RUST_CHECKS@}
