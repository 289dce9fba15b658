"""What the door can be asked: one query a file, a value with its sensitivity and the proof of it.

    of coded tables
        PartitionCounts     rows in each joint part of some attributes
        ViolatingPairs      violating pairs of random matchings
        ViolationMatrix     violations of each constraint by each row of a sample
        CandidateScores     how far joint tables are from what is expected of them
        GradientSum         clipped gradients of a Poisson sample, summed
    of raw columns, whose domains are not known yet
        RowCount            rows
        BucketCounts        rows in each part of a public partition of one column
        TextCounts          rows of each text of one column

A query is asked by ``door.answer(query, mechanism, label)``. It says how far one privacy unit moves
its exact answer; the mechanism draws noise for that, and names the event. Its law is in tests/laws,
with a broken twin that is caught.
"""
