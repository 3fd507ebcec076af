"""What the numbers say should be changed: PURE, one function a rule. `find` applies them all."""
