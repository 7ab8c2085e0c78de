# Reads CTest's log, Testing/Temporary/LastTest.log, and prints which tests could not run here and why: whole files and
# single tests of files that passed. Nothing where all ran.
/^[0-9]+\/[0-9]+ Testing: / { test = $3 }
/^could not run: / { note(substr($0, 16)) }  # tests/support/test_main.cpp
/^skipped: / { note("all: " substr($0, 10)) }  # programs that end with code 77

function note(what) {
  if (test in notes) return  # each of several ranks may say it
  notes[test] = what
  order[++count] = test
  if (length(test) > width) width = length(test)
}

END {
  if (count == 0) exit
  print "Could not run here:"
  for (i = 1; i <= count; ++i) printf "  %-*s  %s\n", width, order[i], notes[order[i]]
  print ""
}
