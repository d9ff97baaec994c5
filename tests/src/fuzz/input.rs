//! A stream of bytes read as decisions. Where it ends, everything is zero.

/// What is left of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// One time in `n`.
    pub(super) fn one_in(&mut self, n: u8) -> bool {
        self.u8().is_multiple_of(n)
    }

    /// Below `end`, which is not zero.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::from(self.u8()) % end
    }
}
