//! Which chunk goes where in which step: the schedules of NCCL's ring collectives.
//!
//! A buffer is n chunks. Rank i sends to i+1 in step s what it received (and added) in step s-1.

use super::config::Collective;

impl Collective {
    /// Ring steps of one collective among `ranks`.
    pub fn steps(self, ranks: u32) -> u32 {
        match self {
            Collective::AllReduce => 2 * ranks.saturating_sub(1),
            Collective::AllGather | Collective::ReduceScatter => ranks.saturating_sub(1),
            Collective::Stream { steps } => steps,
        }
    }

    /// Chunks in each rank's buffer.
    pub fn chunks(self, ranks: u32) -> u32 {
        if matches!(self, Collective::Stream { .. }) { 1 } else { ranks }
    }

    /// Whether `rank` sends.
    pub fn sends(self, rank: u32, ranks: u32) -> bool {
        !matches!(self, Collective::Stream { .. }) || (rank.is_multiple_of(2) && rank + 1 < ranks)
    }

    /// Whether `rank` receives.
    pub fn receives(self, rank: u32) -> bool {
        !matches!(self, Collective::Stream { .. }) || !rank.is_multiple_of(2)
    }

    /// Whether step s may begin only when step s-1 has come from the rank before.
    pub fn depends(self) -> bool {
        !matches!(self, Collective::Stream { .. })
    }

    /// The chunk that `rank` sends in `step`.
    pub fn sent_chunk(self, rank: u32, ranks: u32, step: u32) -> u32 {
        match self {
            Collective::Stream { .. } => 0,
            Collective::AllReduce if step >= ranks - 1 => back(rank + 1, step - (ranks - 1), ranks),
            _ => back(rank, step, ranks),
        }
    }

    /// The chunk that `rank` receives in `step`: what the rank before sends.
    pub fn received_chunk(self, rank: u32, ranks: u32, step: u32) -> u32 {
        self.sent_chunk((rank + ranks - 1) % ranks, ranks, step)
    }

    /// Whether what comes in `step` is added; else it replaces.
    pub fn reduces(self, ranks: u32, step: u32) -> bool {
        match self {
            Collective::AllReduce => step < ranks - 1,
            Collective::ReduceScatter => true,
            Collective::AllGather | Collective::Stream { .. } => false,
        }
    }
}

/// `from - by` in a ring of `ranks`.
fn back(from: u32, by: u32, ranks: u32) -> u32 {
    (from % ranks + ranks - by % ranks) % ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a collective on sets: which ranks' contributions each chunk of each rank holds.
    fn run(collective: Collective, ranks: u32) -> Vec<Vec<u64>> {
        let n = ranks as usize;
        let all_gather = collective == Collective::AllGather;
        let start = |rank: usize, chunk: usize| if !all_gather || rank == chunk { 1 << rank } else { 0 };
        let mut held: Vec<Vec<u64>> = (0..n).map(|r| (0..n).map(|c| start(r, c)).collect()).collect();
        for step in 0..collective.steps(ranks) {
            let sent: Vec<u64> =
                (0..ranks).map(|r| held[r as usize][collective.sent_chunk(r, ranks, step) as usize]).collect();
            for rank in 0..ranks {
                let from = ((rank + ranks - 1) % ranks) as usize;
                let cell = &mut held[rank as usize][collective.received_chunk(rank, ranks, step) as usize];
                if collective.reduces(ranks, step) {
                    assert_eq!(*cell & sent[from], 0, "a contribution would be added twice");
                    *cell |= sent[from];
                } else {
                    *cell = sent[from];
                }
            }
        }
        held
    }

    #[test]
    fn all_reduce_leaves_every_contribution_in_every_chunk_of_every_rank() {
        for ranks in 2..9 {
            let full = (1 << ranks) - 1;
            assert!(run(Collective::AllReduce, ranks).iter().flatten().all(|&held| held == full), "{ranks} ranks");
        }
    }

    #[test]
    fn all_gather_leaves_everybodys_chunk_with_everybody() {
        for ranks in 2..9 {
            for held in run(Collective::AllGather, ranks) {
                assert!(held.iter().enumerate().all(|(chunk, &held)| held == 1 << chunk));
            }
        }
    }

    #[test]
    fn reduce_scatter_leaves_the_sum_of_the_next_chunk() {
        for ranks in 2..9usize {
            let held = run(Collective::ReduceScatter, ranks as u32);
            assert!((0..ranks).all(|rank| held[rank][(rank + 1) % ranks] == (1 << ranks) - 1));
        }
    }
}
