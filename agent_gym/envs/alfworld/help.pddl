  ; Only games with the current wording know this command; it belongs behind the last action of the domain.
  (:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))
