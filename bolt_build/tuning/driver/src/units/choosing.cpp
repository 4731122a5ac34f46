// What is tried next, what won, and what is read and written of it: one unit, as most of the compiler's time goes into the
// headers of the standard library.
#include "../agenda.cpp"
#include "../duel.cpp"
#include "../json.cpp"
#include "../lines.cpp"
#include "../results.cpp"
#include "../search.cpp"
#include "../tables.cpp"
