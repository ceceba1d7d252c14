"""Small changes of a module that no test notices: `aims` names the tests of a module, `run` has mutmut try them."""
