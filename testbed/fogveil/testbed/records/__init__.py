"""Records: the jobs of a run joined from the participants' records, their files, their means."""
